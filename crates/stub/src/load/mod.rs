//! Open- and closed-loop load over HTTP/1.1, for benchmarks.
