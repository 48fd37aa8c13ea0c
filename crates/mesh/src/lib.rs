//! Mutual-TLS links between nodes.
