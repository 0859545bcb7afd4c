//! A file in several `ConfigMap`s, or one that is too long for one.
use std::collections::BTreeMap;

use super::{Decision, Part};
use crate::{
    controller::Error,
    swarm::{
        file::{
            self, STATE_KEY,
            parts::{self, Change},
        },
        handover::Published,
        settings::LARGEST_MAP,
    },
};

type Data = BTreeMap<String, String>;

impl Decision<'_> {
    /// Returns the contents for the `ConfigMap` of the file, and for the parts that change with it.
    pub(super) fn texts(&self, next: &Published) -> Result<(Data, Vec<Part>), Error> {
        let names = self.swarm.parts();
        if names.is_empty() {
            let data = self.data(next);
            let size = size(&data);
            return if size > LARGEST_MAP {
                Err(self.too_long(next, size))
            } else {
                Ok((data, vec![]))
            };
        }
        let files = self.swarm.spec.config_map.files;
        let Change { head, parts } = parts::change(next, &self.parts, files);
        let mut written = Vec::with_capacity(parts.len());
        for (i, part) in parts {
            let file::Files { config, state } = parts::render(&part, i, files);
            let key = self.swarm.spec.config_map.key.clone();
            let data = Data::from([(key, config), (STATE_KEY.to_owned(), state)]);
            let size = size(&data);
            if size > LARGEST_MAP {
                return Err(self.too_long(next, size));
            }
            let map = self.view.parts.get(i as usize).and_then(Option::as_ref);
            let on = map.map(|map| map.resource_version.clone());
            written.push(Part { name: names[i as usize].clone(), data, on });
        }
        let state = (STATE_KEY.to_owned(), head.render());
        Ok(([state].into_iter().chain(self.key()).collect(), written))
    }

    fn too_long(&self, next: &Published, size: usize) -> Error {
        let config_map = &self.swarm.spec.config_map;
        let names = config_map.key.len() + STATE_KEY.len();
        let room = LARGEST_MAP.saturating_sub(names);
        let needed = parts::needed(next, room, config_map.files.saturating_add(1));
        let advice = match needed.filter(|_| !self.settings.immutable) {
            Some(files) => format!(
                "divide it with spec.configMap.files, at least {files}; that cannot change, so delete \
                 the Swarm with --cascade=orphan and apply it again"
            ),
            None => "divide the streams among several Swarms, each with a separate workload".into(),
        };
        Error::Invalid(format!(
            "spec: the file of {} streams would have {size} bytes in one ConfigMap, which holds \
             {LARGEST_MAP}: {advice}; workers keep what they have",
            self.ids.len()
        ))
    }
}

fn size(data: &Data) -> usize {
    data.iter().map(|(key, value)| key.len() + value.len()).sum()
}
