//! A dashboard's file, as far as it is drawn.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(super) struct Dashboard {
    pub title: String,
    #[serde(default)]
    pub description: String,
    panels: Vec<Panel>,
    #[serde(default)]
    templating: Templating,
}

#[derive(Debug, Default, Deserialize)]
struct Templating {
    #[serde(default)]
    list: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, rename = "allValue")]
    all: Option<String>,
    #[serde(default)]
    current: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct Panel {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    #[serde(default)]
    pub description: String,
    #[serde(rename = "gridPos")]
    pub grid: Grid,
    #[serde(default)]
    pub targets: Vec<Target>,
    #[serde(default, rename = "fieldConfig")]
    fields: Fields,
    #[serde(default)]
    pub options: Value,
    #[serde(default)]
    pub transformations: Vec<Transformation>,
    #[serde(default)]
    pub panels: Vec<Panel>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Grid {
    pub x: u32,
    pub y: u32,
    pub w: u32,
    pub h: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Target {
    #[serde(rename = "refId")]
    pub id: String,
    pub expr: String,
    #[serde(default, rename = "legendFormat")]
    pub legend: String,
    #[serde(default)]
    pub instant: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Fields {
    #[serde(default)]
    defaults: Value,
    #[serde(default)]
    overrides: Vec<Override>,
}

#[derive(Debug, Deserialize)]
struct Override {
    matcher: Matcher,
    properties: Vec<Property>,
}

#[derive(Debug, Deserialize)]
struct Matcher {
    id: String,
    options: Value,
}

#[derive(Debug, Deserialize)]
struct Property {
    id: String,
    value: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct Transformation {
    pub id: String,
    #[serde(default)]
    pub options: Value,
}

impl Dashboard {
    /// All panels with their places: without those of folded rows, or as if every row were
    /// unfolded. The file gives a folded row no room for its panels.
    pub fn panels(&self, folded: bool) -> Vec<(&Panel, Grid)> {
        if folded {
            return self.panels.iter().map(|panel| (panel, panel.grid)).collect();
        }
        let mut placed = Vec::new();
        let mut moved = 0;
        for panel in &self.panels {
            let inner = panel.panels.iter();
            let down = |panel: &Panel| Grid { y: panel.grid.y + moved, ..panel.grid };
            placed.extend(std::iter::once(panel).chain(inner.clone()).map(|p| (p, down(p))));
            let end = inner.map(|panel| panel.grid.bottom()).max();
            moved += end.map_or(0, |end| end.saturating_sub(panel.grid.bottom()));
        }
        placed
    }

    /// Puts "all" for every variable of a query, and what was entered for the others.
    pub fn substitute(&self, query: &str, rate_interval: &str, range: &str) -> String {
        let mut text = query.to_owned();
        let mut values = vec![("__rate_interval", rate_interval), ("__range", range)];
        let chosen = self.templating.list.iter().filter(|variable| variable.kind != "datasource");
        values.extend(chosen.map(|v| (v.name.as_str(), v.value())));
        // $name is the beginning of $namespace.
        values.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, value) in values {
            text = text.replace(&format!("${{{name}}}"), value);
            text = text.replace(&format!("${name}"), value);
        }
        text
    }
}

impl Grid {
    /// The first line below it.
    pub fn bottom(self) -> u32 {
        self.y + self.h
    }
}

impl Variable {
    /// The value for the picture.
    fn value(&self) -> &str {
        let entered = self.current["value"].as_str().filter(|_| self.kind != "query");
        entered.or(self.all.as_deref()).unwrap_or(".*")
    }
}

/// The display of one field: the panel's defaults, and the overrides that match it.
pub(super) struct Look<'a> {
    panel: &'a Panel,
    name: String,
    query: String,
}

impl Panel {
    /// Returns the display of a series.
    pub fn look(&self, query: &str, name: &str) -> Look<'_> {
        Look { panel: self, name: name.to_owned(), query: query.to_owned() }
    }

    /// Returns the display of a column.
    pub fn column(&self, name: &str) -> Look<'_> {
        Look { panel: self, name: name.to_owned(), query: String::new() }
    }

    /// A setting of the panel's fields, by its path in the file ("custom.lineWidth").
    pub fn default(&self, path: &str) -> &Value {
        at(&self.fields.defaults, path)
    }

    /// Returns the first unsupported matcher, which would otherwise be ignored silently.
    pub fn unknown_matcher(&self) -> Option<&str> {
        let known = |id: &str| ["byName", "byFrameRefID", "byRegexp"].contains(&id);
        self.fields.overrides.iter().map(|o| o.matcher.id.as_str()).find(|id| !known(id))
    }
}

impl Look<'_> {
    /// A setting of this field.
    pub fn get(&self, path: &str) -> &Value {
        let matching = self.panel.fields.overrides.iter().filter(|o| self.matches(&o.matcher));
        let set = matching.flat_map(|o| &o.properties).rfind(|p| p.id == path);
        set.map_or_else(|| self.panel.default(path), |property| &property.value)
    }

    pub fn unit(&self) -> &str {
        self.get("unit").as_str().unwrap_or("none")
    }

    pub fn decimals(&self) -> Option<usize> {
        self.get("decimals").as_u64().and_then(|decimals| usize::try_from(decimals).ok())
    }

    /// The color that is set for this field whatever its value.
    pub fn fixed_color(&self) -> Option<&str> {
        let color = self.get("color");
        (color["mode"] == "fixed").then(|| color["fixedColor"].as_str()).flatten()
    }

    /// Returns the display of a value: another text, and a color.
    pub fn mapped(&self, value: &str) -> (Option<&str>, Option<&str>) {
        let mappings = self.get("mappings").as_array().map_or(&[][..], Vec::as_slice);
        let found = mappings
            .iter()
            .filter(|mapping| mapping["type"] == "value")
            .map(|mapping| &mapping["options"][value])
            .find(|option| option.is_object());
        found.map_or((None, None), |option| (option["text"].as_str(), option["color"].as_str()))
    }

    /// The color of the step that a value has reached.
    pub fn threshold_color(&self, value: f64) -> Option<&str> {
        let steps = self.get("thresholds")["steps"].as_array()?;
        let mut reached =
            steps.iter().filter(|step| step["value"].as_f64().is_none_or(|from| value >= from));
        reached.next_back()?["color"].as_str()
    }

    fn matches(&self, matcher: &Matcher) -> bool {
        let wanted = matcher.options.as_str().unwrap_or_default();
        match matcher.id.as_str() {
            "byName" => wanted == self.name,
            "byFrameRefID" => wanted == self.query,
            // Dashboards use only ".* text", which is not worth a regular expression engine.
            "byRegexp" => {
                wanted.strip_prefix(".*").is_some_and(|suffix| self.name.ends_with(suffix))
            }
            _ => false,
        }
    }
}

/// A value inside of others; null if there is none.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, key| &value[key])
}
