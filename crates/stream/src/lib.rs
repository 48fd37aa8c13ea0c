//! An async byte stream over the record layer.
