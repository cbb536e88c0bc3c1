"""Making submissions: what acts (`sources`, `line_protocol`), played by the protocol (`playing`), put together (`writing`)."""
