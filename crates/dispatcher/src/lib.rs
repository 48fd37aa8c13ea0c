//! The dispatcher: accepts clients, picks agents, relays bytes, decides moves.
