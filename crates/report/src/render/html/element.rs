//! Elements of a page. The output is well formed, as HTML and as XML, and all text is escaped.

use crate::render::format::printable;
use std::fmt::Display;

/// An element with its attributes and children.
#[derive(Clone, Debug)]
pub(super) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Child>,
}

#[derive(Clone, Debug)]
enum Child {
    Element(Element),
    Text(String),
}

/// Creates an element without attributes and children.
pub(super) fn el(name: &'static str) -> Element {
    Element { name, attributes: Vec::new(), children: Vec::new() }
}

impl Element {
    pub(super) fn set(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Sets a length or coordinate, to a hundredth of a pixel.
    pub(super) fn at(self, name: &'static str, value: f64) -> Self {
        self.set(name, number(value))
    }

    pub(super) fn class(self, class: impl Display) -> Self {
        self.set("class", class)
    }

    pub(super) fn text(mut self, text: impl AsRef<str>) -> Self {
        self.children.push(Child::Text(text.as_ref().to_owned()));
        self
    }

    pub(super) fn child(mut self, child: Element) -> Self {
        self.children.push(Child::Element(child));
        self
    }

    pub(super) fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children.into_iter().map(Child::Element));
        self
    }

    /// Returns the value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }

    /// Makes it a part of section `n`: headings are a level lower, and identifiers differ from those of other sections.
    pub(super) fn into_part_of(mut self, n: usize) -> Self {
        self.become_part_of(n);
        self
    }

    fn become_part_of(&mut self, n: usize) {
        if self.name == "h2" {
            self.name = "h3";
        }
        for (_, value) in self.attributes.iter_mut().filter(|(name, _)| matches!(*name, "id" | "aria-labelledby")) {
            let words: Vec<String> = value.split(' ').map(|id| format!("s{n}-{id}")).collect();
            *value = words.join(" ");
        }
        for child in &mut self.children {
            if let Child::Element(element) = child {
                element.become_part_of(n);
            }
        }
    }

    /// Inserts a child before the others.
    pub(super) fn prepend(mut self, child: Element) -> Self {
        self.children.insert(0, Child::Element(child));
        self
    }

    /// Returns the SVG elements in it, or itself if it is one.
    pub(super) fn into_svgs(self) -> Vec<Element> {
        if self.name == "svg" {
            return vec![self];
        }
        let svgs = self.children.into_iter().filter_map(|child| match child {
            Child::Element(element) => Some(element.into_svgs()),
            Child::Text(_) => None,
        });
        svgs.flatten().collect()
    }

    pub(super) fn write(&self, out: &mut String) {
        out.push('<');
        out.push_str(self.name);
        for (name, value) in &self.attributes {
            out.push(' ');
            out.push_str(name);
            out.push_str("=\"");
            escape(value, true, out);
            out.push('"');
        }
        // void elements of HTML
        if matches!(self.name, "meta" | "br") {
            out.push_str("/>");
            return;
        }
        out.push('>');
        for child in &self.children {
            match child {
                Child::Element(element) => element.write(out),
                Child::Text(text) => escape(text, false, out),
            }
        }
        out.push_str("</");
        out.push_str(self.name);
        out.push('>');
        if matches!(self.name, "tr" | "p" | "li" | "g" | "svg" | "table" | "figure" | "section" | "style") {
            out.push('\n');
        }
    }
}

/// Formats a number with at most two decimals.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn escape(text: &str, quotes: bool, out: &mut String) {
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        for c in printable(line).chars() {
            match c {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '"' if quotes => out.push_str("&quot;"),
                c => out.push(c),
            }
        }
        out.push_str(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_text() {
        let mut out = String::new();
        el("b").set("title", "\"'<&").text("</b><script>'\"\u{0}\n").child(el("br")).write(&mut out);
        assert_eq!(out, "<b title=\"&quot;'&lt;&amp;\">&lt;/b&gt;&lt;script&gt;'\"\u{fffd}\n<br/></b>");
    }

    #[test]
    fn formats_numbers() {
        assert_eq!([1.0, 1.005, -0.001, 12.5].map(number), ["1", "1", "0", "12.5"]);
    }
}
