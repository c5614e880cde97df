"""ringlog: a log-structured message broker, durable by default.

Owns the import root and the version. The six folders beside this one appear here as
`ringlog.storage`, `ringlog.client` and so on; nothing is imported eagerly, so that
`import ringlog.client` stays quick. Applications import `ringlog.client`.
"""

__version__ = "0.1.0"
