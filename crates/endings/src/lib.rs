//! How TCP connections to servers ended, and what that says of the servers.
