//! Writes SVG: shapes, text, and nothing that a browser would have to fetch.

use std::fmt::Write;

/// The style of shapes; the fonts are the reader's own.
const STYLE: &str = "
text{font:12px system-ui,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:#24292e}
.title{font-size:18px;font-weight:600}.row{font-size:14px;font-weight:600}.head{font-size:13px;font-weight:600}
.soft,.tick{fill:#57606a}.tick,.legend{font-size:11px}.big{font-weight:600}.none{font-size:15px;fill:#57606a;font-style:italic}
.ground{fill:#f4f5f7}.panel{fill:#fff;stroke:#dfe3e8}.grid{stroke:#e7eaee;stroke-width:1}.line{fill:none;stroke-width:1.5;stroke-linejoin:round}
.dash{stroke-dasharray:6 4}.limit{stroke-width:1.2;stroke-dasharray:2 3}";

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    /// Returns the area within margins.
    pub fn within(self, left: f64, top: f64, right: f64, bottom: f64) -> Self {
        Self {
            x: self.x + left,
            y: self.y + top,
            width: self.width - left - right,
            height: self.height - top - bottom,
        }
    }

    pub fn right(self) -> f64 {
        self.x + self.width
    }

    pub fn bottom(self) -> f64 {
        self.y + self.height
    }
}

/// A document in the making.
pub(super) struct Svg(String);

impl Svg {
    pub fn new((width, height): (f64, f64), title: &str, description: &str) -> Self {
        let (width, height) = (number(width), number(height));
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" aria-labelledby=\"title description\">\n<title id=\"title\">{}</title>\n\
             <desc id=\"description\">{}</desc>\n<style>{STYLE}</style>\n",
            escape(title),
            escape(description)
        );
        let _ = writeln!(text, "<rect width=\"{width}\" height=\"{height}\" class=\"ground\"/>");
        Self(text)
    }

    pub fn finish(mut self) -> String {
        self.0 += "</svg>\n";
        self.0
    }

    /// Begins a panel.
    pub fn open(&mut self, title: &str, description: &str) {
        let text = escape(&format!("{title}: {description}"));
        let _ = writeln!(self.0, "<g><title>{text}</title>");
    }

    pub fn close(&mut self) {
        self.0 += "</g>\n";
    }

    pub fn rect(&mut self, area: Area, class: &str) {
        let place = place(area);
        let _ = writeln!(self.0, "<rect {place} rx=\"3\" class=\"{class}\"/>");
    }

    pub fn filled(&mut self, area: Area, color: &str) {
        let place = place(area);
        let _ = writeln!(self.0, "<rect {place} fill=\"{}\"/>", escape(color));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str, color: Option<&str>) {
        let stroke =
            color.map(|color| format!(" stroke=\"{}\"", escape(color))).unwrap_or_default();
        let _ = writeln!(
            self.0,
            "<path d=\"M{} {}L{} {}\" class=\"{class}\"{stroke}/>",
            number(from.0),
            number(from.1),
            number(to.0),
            number(to.1)
        );
    }

    /// Draws lines through points, one for each part without gap.
    pub fn path(&mut self, parts: &[Vec<(f64, f64)>], class: &str, color: &str) {
        let mut path = String::new();
        for part in parts {
            // In tenths of a pixel, each from the one before: half as long, and without drift.
            let mut last = None;
            for (x, y) in part.iter().map(|(x, y)| ((x * 10.0).round(), (y * 10.0).round())) {
                let (letter, from) = last.map_or(('M', (0.0, 0.0)), |last| ('l', last));
                let (x_step, y_step) = (number((x - from.0) / 10.0), number((y - from.1) / 10.0));
                let gap = if y_step.starts_with('-') { "" } else { " " };
                let _ = write!(path, "{letter}{x_step}{gap}{y_step}");
                last = Some((x, y));
            }
            if part.len() == 1 {
                // A point alone has no line; a short one shows that it is there.
                path += "l1 0";
            }
        }
        let _ =
            writeln!(self.0, "<path d=\"{path}\" class=\"{class}\" stroke=\"{}\"/>", escape(color));
    }

    pub fn text(&mut self, at: (f64, f64), class: &str, text: &str) {
        self.write(at, class, "", text);
    }

    pub fn text_end(&mut self, at: (f64, f64), class: &str, text: &str) {
        self.write(at, class, " text-anchor=\"end\"", text);
    }

    pub fn text_middle(&mut self, at: (f64, f64), class: &str, text: &str) {
        self.write(at, class, " text-anchor=\"middle\"", text);
    }

    /// Writes in a color, and in a size if it is not the class's own.
    pub fn colored(&mut self, at: (f64, f64), class: &str, color: &str, size: f64, text: &str) {
        let style = format!(" style=\"fill:{};font-size:{}px\"", escape(color), number(size));
        self.write(at, class, &style, text);
    }

    fn write(&mut self, (x, y): (f64, f64), class: &str, more: &str, text: &str) {
        let (x, y) = (number(x), number(y));
        let text = escape(text);
        let _ = writeln!(self.0, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\"{more}>{text}</text>");
    }
}

fn place(area: Area) -> String {
    let Area { x, y, width, height } = area;
    let [x, y, width, height] = [x, y, width, height].map(number);
    format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
}

/// A tenth of a pixel is as exact as a screen.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            // Not allowed in XML at all.
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

/// Estimates the width of a text. Fonts differ: it is rather too large than too small.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'l' | 'j' | 't' | 'f' | 'r' | ' ' | '.' | ',' | ':' | '/' | '|' | '-' => 0.36,
        'm' | 'w' | 'M' | 'W' | '%' => 0.9,
        c if c.is_ascii_uppercase() => 0.69,
        c if c.is_ascii() => 0.58,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// Cuts a text to a width.
pub(super) fn cut(text: &str, size: f64, most: f64) -> String {
    if width(text, size) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        if width(&kept, size) + width(&format!("{c}…"), size) > most {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

/// The colors that dashboards name, readable on white.
pub(super) fn color(name: &str) -> &str {
    match name {
        "green" => "#2f8a3b",
        "red" => "#d0202f",
        "blue" => "#2b6cd4",
        "orange" => "#d97706",
        "text" => "#24292e",
        other => other,
    }
}

/// For series without a color of their own, one after the other.
pub(super) fn palette(index: usize) -> &'static str {
    const COLORS: [&str; 12] = [
        "#2f8a3b", "#2b6cd4", "#c77700", "#8e44ad", "#0e8f8f", "#b5467a", "#6b6b00", "#5a5fcf",
        "#8a5a2b", "#1f9bcf", "#4b5563", "#a83232",
    ];
    COLORS[index % COLORS.len()]
}
