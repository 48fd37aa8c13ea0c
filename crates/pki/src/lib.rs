//! The cluster's certificate authority, node certificates and roles.
