//! A header map as Envoy keeps one: ordered, names in lower case, several values a name.

use std::fmt;

#[derive(Clone, Default, Eq, PartialEq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    pub fn new() -> Self {
        Self::default()
    }

    /// The first value, as the real host answers (it does not join values).
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let name = name.to_ascii_lowercase();
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_slice())
    }

    /// The first value as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self, name: &str) -> Option<String> {
        self.value(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    pub fn values(&self, name: &str) -> Vec<String> {
        let name = name.to_ascii_lowercase();
        let same = self.0.iter().filter(|(known, _)| *known == name);
        same.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.0.push((name.to_ascii_lowercase(), value.as_ref().to_vec()));
    }

    /// Leaves exactly one value, where the first one stood.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let name = name.to_ascii_lowercase();
        let place = self.0.iter().position(|(known, _)| *known == name).unwrap_or(self.0.len());
        self.0.retain(|(known, _)| *known != name);
        self.0.insert(place, (name, value.as_ref().to_vec()));
    }

    pub fn remove(&mut self, name: &str) {
        let name = name.to_ascii_lowercase();
        self.0.retain(|(known, _)| *known != name);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The ABI's form: a count, all sizes, then every name and value, each closed by a zero.
    pub(crate) fn to_wire(&self) -> Vec<u8> {
        let mut wire = (self.0.len() as u32).to_le_bytes().to_vec();
        for (name, value) in &self.0 {
            wire.extend((name.len() as u32).to_le_bytes());
            wire.extend((value.len() as u32).to_le_bytes());
        }
        for (name, value) in &self.0 {
            wire.extend(name.as_bytes());
            wire.push(0);
            wire.extend(value);
            wire.push(0);
        }
        wire
    }

    /// `None` when the sizes do not fit the bytes. No bytes at all is an empty map.
    pub(crate) fn from_wire(wire: &[u8]) -> Option<Self> {
        if wire.is_empty() {
            return Some(Self::default());
        }
        let number = |at: usize| -> Option<usize> {
            Some(u32::from_le_bytes(wire.get(at..at + 4)?.try_into().ok()?) as usize)
        };
        let count = number(0)?;
        let mut at = count.checked_mul(8)?.checked_add(4)?;
        let mut take = |size: usize| -> Option<&[u8]> {
            let part = wire.get(at..at.checked_add(size)?)?;
            at += size + 1;
            Some(part)
        };
        let mut headers = Self::default();
        for nth in 0..count {
            let name = take(number(4 + nth * 8)?)?;
            let value = take(number(8 + nth * 8)?)?;
            headers.add(&String::from_utf8_lossy(name), value);
        }
        Some(headers)
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.iter().map(|(name, value)| (name, String::from_utf8_lossy(value)));
        out.debug_map().entries(text).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const C: usize> From<[(N, V); C]> for Headers {
    fn from(pairs: [(N, V); C]) -> Self {
        pairs.into_iter().collect()
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> From<&[(N, V)]> for Headers {
    fn from(pairs: &[(N, V)]) -> Self {
        let mut headers = Self::default();
        pairs.iter().for_each(|(name, value)| headers.add(name.as_ref(), value));
        headers
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> From<Vec<(N, V)>> for Headers {
    fn from(pairs: Vec<(N, V)>) -> Self {
        pairs.into_iter().collect()
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = Self::default();
        pairs.into_iter().for_each(|(name, value)| headers.add(name.as_ref(), value));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_survives_the_wire_and_a_short_one_is_refused() {
        let headers = Headers::from([(":path", "/v1"), ("X-Empty", ""), ("x-two", "a"), ("x-two", "b")]);
        let wire = headers.to_wire();
        assert_eq!(Headers::from_wire(&wire), Some(headers));
        assert_eq!(Headers::from_wire(&wire[..wire.len() - 4]), None);
        assert_eq!(Headers::from_wire(&[255, 255, 255, 255]), None);
    }

    #[test]
    fn setting_leaves_one_value_in_the_first_ones_place() {
        let mut headers = Headers::from([("a", "1"), ("b", "2"), ("A", "3")]);
        headers.set("A", "4");
        assert_eq!(headers, Headers::from([("a", "4"), ("b", "2")]));
    }
}
