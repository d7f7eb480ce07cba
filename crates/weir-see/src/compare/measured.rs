//! An average as a server reports it: `weir trace --avg N --json`.

use weir_http::json::JsonValue;

use super::stats::SampleMoments;

/// A node of an average tree; the root is the request itself. Times are nanoseconds a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeasuredNode {
    /// The sort of site: `phase`, `handler`, `body_filter`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) run: SampleMoments,
    pub(crate) wait: SampleMoments,
    pub(crate) children: Vec<MeasuredNode>,
}

impl MeasuredNode {
    /// Reads a response, or a file that was saved.
    ///
    /// # Errors
    /// It is something else, or a file of a version that saved no deviations.
    pub(crate) fn parse(text: &[u8]) -> Result<MeasuredNode, String> {
        let value = JsonValue::parse(text).map_err(|error| error.to_string())?;
        let requests = value.field("requests").and_then(JsonValue::number).ok_or("this is no average")?;
        let root = value.field("root").ok_or("this is no average")?;
        MeasuredNode::read(root, requests as f64)
    }

    /// How many requests it is of.
    pub(crate) fn requests(&self) -> u64 {
        self.run.count as u64
    }

    fn read(value: &JsonValue, requests: f64) -> Result<MeasuredNode, String> {
        let text = |key| value.field(key).and_then(JsonValue::text).unwrap_or("").to_owned();
        let moments = |sum: &str, deviation: &str| -> Result<SampleMoments, String> {
            let sum = number(value, sum).ok_or_else(|| format!("a node has no {sum}"))?;
            let deviation = number(value, deviation)
                .ok_or_else(|| format!("a node has no {deviation}: an older weir has saved this"))?;
            Ok(SampleMoments { count: requests, mean: sum / requests.max(1.0), variance: deviation.powi(2) })
        };
        let mut node = MeasuredNode {
            kind: text("kind"),
            name: text("name"),
            run: moments("run_ns", "run_sd_ns")?,
            wait: moments("wait_ns", "wait_sd_ns")?,
            children: Vec::new(),
        };
        for child in value.field("children").and_then(JsonValue::list).unwrap_or(&[]) {
            node.adopt(MeasuredNode::read(child, requests)?);
        }
        Ok(node)
    }

    /// Takes a child. The same handler or phase of another location is the same line here.
    fn adopt(&mut self, child: MeasuredNode) {
        match self.children.iter_mut().find(|there| there.is_as(&child)) {
            Some(there) => {
                there.run = there.run.joined(child.run);
                there.wait = there.wait.joined(child.wait);
                child.children.into_iter().for_each(|below| there.adopt(below));
            }
            None => self.children.push(child),
        }
    }

    fn is_as(&self, other: &MeasuredNode) -> bool {
        (&self.kind, &self.name) == (&other.kind, &other.name)
    }
}

fn number(value: &JsonValue, key: &str) -> Option<f64> {
    match value.field(key)? {
        JsonValue::Number(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `(kind, name, mean, children)`, of a hundred requests with deviations of a tenth of the mean.
    pub(crate) fn tree(kind: &str, name: &str, mean: f64, children: Vec<MeasuredNode>) -> MeasuredNode {
        let run = SampleMoments { count: 100.0, mean, variance: (mean / 10.0).powi(2) };
        let wait = SampleMoments { count: 100.0, ..SampleMoments::default() };
        MeasuredNode { kind: kind.to_owned(), name: name.to_owned(), run, wait, children }
    }

    #[test]
    fn an_answer_is_read_and_locations_are_one() {
        let text = br#"{"requests":4,"root":{"kind":"request","name":"","run_ns":400,"wait_ns":40,"run_sd_ns":5.5,
            "wait_sd_ns":0.0,"children":[
            {"kind":"phase","phase":"access","location":"/a","name":"access","run_ns":40,"wait_ns":0,"run_sd_ns":1.0,"wait_sd_ns":0},
            {"kind":"phase","phase":"access","location":"/b","name":"access","run_ns":20,"wait_ns":0,"run_sd_ns":1.0,"wait_sd_ns":0,
             "children":[]}]}}"#;
        let read = MeasuredNode::parse(text).expect("an average");
        assert_eq!((read.requests(), read.run.mean, read.run.variance), (4, 100.0, 30.25));
        assert_eq!((read.children.len(), read.children[0].run.mean, read.wait.mean), (1, 15.0, 10.0));
        for (wrong, why) in [
            (&b"{}"[..], "this is no average"),
            (b"x", "no JSON at byte 0"),
            (
                br#"{"requests":1,"root":{"run_ns":1}}"#,
                "a node has no run_sd_ns: an older weir has saved this",
            ),
            (br#"{"requests":1,"root":{}}"#, "a node has no run_ns"),
        ] {
            assert_eq!(MeasuredNode::parse(wrong), Err(why.to_owned()));
        }
    }
}
