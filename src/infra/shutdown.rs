//! One signal that every loop and server listens to.
use tokio::sync::watch;

/// The signal to end; clones share it.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<bool>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Shutdown {
    /// Gives the signal.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Reports whether the signal was given.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the signal; returns at once if it was given.
    pub fn begun(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        let mut receiver = self.0.subscribe();
        async move {
            // An error means that the sender is gone, which is the end as well.
            let _ = receiver.wait_for(|begun| *begun).await;
        }
    }
}
