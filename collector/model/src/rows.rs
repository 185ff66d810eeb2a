//! Values by entity id, as one sorted list: what a window has of one kind. A window is made once, read often and kept for minutes; a tree
//! would take room for eleven values where there are three, and a node for each look. Knows no value.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Index;

/// Used as a map is; ids rise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<u32, T>", into = "BTreeMap<u32, T>", bound(serialize = "T: Serialize + Clone"))]
pub struct Rows<T>(Vec<(u32, T)>);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The place of an id.
#[derive(Debug)]
pub struct Entry<'a, T> {
    rows: &'a mut Vec<(u32, T)>,
    id: u32,
    at: Result<usize, usize>,
}

impl<'a, T> Entry<'a, T> {
    /// Its value; if there is none, what `make` gives.
    pub fn or_insert_with(self, make: impl FnOnce() -> T) -> &'a mut T {
        let at = match self.at {
            Ok(at) => at,
            Err(at) => {
                self.rows.insert(at, (self.id, make()));
                at
            }
        };
        &mut self.rows[at].1
    }

    /// The same with the default.
    pub fn or_default(self) -> &'a mut T
    where
        T: Default,
    {
        self.or_insert_with(T::default)
    }
}

impl<T> Rows<T> {
    /// An empty list with room for so many.
    #[must_use]
    pub fn with_capacity(rows: usize) -> Self {
        Self(Vec::with_capacity(rows))
    }

    fn place(&self, id: u32) -> Result<usize, usize> {
        // Windows are mostly filled in the order of ids.
        match self.0.last() {
            Some((last, _)) if *last < id => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&id, |(id, _)| *id),
        }
    }

    /// The value of an id.
    #[must_use]
    pub fn get(&self, id: &u32) -> Option<&T> {
        self.place(*id).ok().map(|at| &self.0[at].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: &u32) -> Option<&mut T> {
        self.place(*id).ok().map(|at| &mut self.0[at].1)
    }

    /// Whether there is one.
    #[must_use]
    pub fn contains_key(&self, id: &u32) -> bool {
        self.place(*id).is_ok()
    }

    /// The place of an id, to be filled.
    pub fn entry(&mut self, id: u32) -> Entry<'_, T> {
        let at = self.place(id);
        Entry { rows: &mut self.0, id, at }
    }

    /// Sets a value; the one that was there.
    pub fn insert(&mut self, id: u32, value: T) -> Option<T> {
        match self.place(id) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (id, value));
                None
            }
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, id: &u32) -> Option<T> {
        self.place(*id).ok().map(|at| self.0.remove(at).1)
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ids, rising.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &u32> + Clone {
        self.0.iter().map(|(id, _)| id)
    }

    /// Values in the order of ids.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.0.iter().map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Both.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&u32, &T)> + Clone {
        self.0.iter().map(|(id, value)| (id, value))
    }

    /// Memory that is set aside, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u32, T)>()
    }

    /// Gives back room that is not used: what is kept does not grow any more.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}

impl<T> Index<&u32> for Rows<T> {
    type Output = T;
    /// Of an id that is there.
    fn index(&self, id: &u32) -> &T {
        self.get(id).expect("an id that is there")
    }
}

impl<T> FromIterator<(u32, T)> for Rows<T> {
    fn from_iter<I: IntoIterator<Item = (u32, T)>>(all: I) -> Self {
        let mut rows = Self::default();
        rows.extend(all);
        rows
    }
}

impl<T> Extend<(u32, T)> for Rows<T> {
    fn extend<I: IntoIterator<Item = (u32, T)>>(&mut self, all: I) {
        for (id, value) in all {
            self.insert(id, value);
        }
    }
}

impl<T> From<BTreeMap<u32, T>> for Rows<T> {
    fn from(all: BTreeMap<u32, T>) -> Self {
        Self(all.into_iter().collect())
    }
}

impl<T> From<Rows<T>> for BTreeMap<u32, T> {
    fn from(rows: Rows<T>) -> Self {
        rows.0.into_iter().collect()
    }
}

impl<T, const N: usize> From<[(u32, T); N]> for Rows<T> {
    fn from(all: [(u32, T); N]) -> Self {
        all.into_iter().collect()
    }
}

impl<T> IntoIterator for Rows<T> {
    type Item = (u32, T);
    type IntoIter = std::vec::IntoIter<(u32, T)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// One row of a list that is borrowed.
type Lent<'a, T> = std::iter::Map<std::slice::Iter<'a, (u32, T)>, fn(&'a (u32, T)) -> (&'a u32, &'a T)>;

impl<'a, T> IntoIterator for &'a Rows<T> {
    type Item = (&'a u32, &'a T);
    type IntoIter = Lent<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(id, value)| (id, value))
    }
}

/// The same, to be changed.
type LentMut<'a, T> =
    std::iter::Map<std::slice::IterMut<'a, (u32, T)>, fn(&'a mut (u32, T)) -> (&'a u32, &'a mut T)>;

impl<'a, T> IntoIterator for &'a mut Rows<T> {
    type Item = (&'a u32, &'a mut T);
    type IntoIter = LentMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut().map(|(id, value)| (&*id, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_whatever_the_order_in_which_it_is_filled() {
        for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1]] {
            let mut rows: Rows<u64> = Rows::default();
            let mut map: BTreeMap<u32, u64> = BTreeMap::new();
            for id in order {
                *rows.entry(id).or_default() += u64::from(id);
                *map.entry(id).or_default() += u64::from(id);
            }
            assert_eq!((rows.insert(2, 9), map.insert(2, 9)), (Some(2), Some(2)));
            assert_eq!((rows.remove(&1), map.remove(&1)), (Some(1), Some(1)));
            assert_eq!((rows.get(&1), rows.get(&4)), (None, None));
            assert!(rows.iter().eq(map.iter()) && rows.contains_key(&3) && rows[&3] == 3);
            assert_eq!(BTreeMap::from(rows), map);
        }
    }
}
