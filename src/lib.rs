//! payonce
