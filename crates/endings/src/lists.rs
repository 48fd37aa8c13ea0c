//! Queues of connections without allocations of their own: each connection is in one list at most.

const NONE: u32 = u32::MAX;

/// Doubly linked lists over the same small ids.
#[derive(Debug)]
pub(crate) struct Lists {
    ends: Vec<Ends>,
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
    len: u32,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    previous: u32,
    next: u32,
    list: u32,
}

impl Lists {
    pub(crate) fn new(lists: usize) -> Self {
        Self { ends: vec![Ends { first: NONE, last: NONE, len: 0 }; lists], nodes: Vec::new() }
    }

    /// Moves `id` to the end of a list, from the one that it was in.
    pub(crate) fn push(&mut self, list: u32, id: u32) {
        self.remove(id);
        if self.nodes.len() <= id as usize {
            self.nodes.resize(id as usize + 1, Node { previous: NONE, next: NONE, list: NONE });
        }
        let ends = &mut self.ends[list as usize];
        self.nodes[id as usize] = Node { previous: ends.last, next: NONE, list };
        if ends.last == NONE {
            ends.first = id;
        } else {
            self.nodes[ends.last as usize].next = id;
        }
        ends.last = id;
        ends.len += 1;
    }

    /// Removes `id` from its list, and returns the list.
    pub(crate) fn remove(&mut self, id: u32) -> Option<u32> {
        let node = *self.nodes.get(id as usize)?;
        let ends = self.ends.get_mut(node.list as usize)?;
        match node.previous {
            NONE => ends.first = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        match node.next {
            NONE => ends.last = node.previous,
            next => self.nodes[next as usize].previous = node.previous,
        }
        ends.len -= 1;
        self.nodes[id as usize].list = NONE;
        Some(node.list)
    }

    /// The list that `id` is in.
    pub(crate) fn list(&self, id: u32) -> Option<u32> {
        self.nodes.get(id as usize).map(|node| node.list).filter(|list| *list != NONE)
    }

    /// The id that has been in a list for the longest time.
    pub(crate) fn first(&self, list: u32) -> Option<u32> {
        let first = self.ends[list as usize].first;
        (first != NONE).then_some(first)
    }

    pub(crate) fn len(&self, list: u32) -> u32 {
        self.ends[list as usize].len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_queues(steps in proptest::collection::vec((0..4_u32, 0..3_u32), 0..60)) {
            let mut lists = Lists::new(3);
            let mut model = vec![Vec::new(); 3];
            for (id, list) in steps {
                let expected = model.iter_mut().position(|list: &mut Vec<u32>| {
                    let len = list.len();
                    list.retain(|other| *other != id);
                    list.len() < len
                });
                if list == 2 {
                    prop_assert_eq!(lists.remove(id).map(|list| list as usize), expected);
                } else {
                    lists.push(list, id);
                    model[list as usize].push(id);
                }
                for (list, model) in (0..).zip(&model) {
                    prop_assert_eq!(lists.first(list), model.first().copied());
                    prop_assert_eq!(lists.len(list) as usize, model.len());
                }
            }
        }
    }
}
