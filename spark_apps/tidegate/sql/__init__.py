"""The SQL door: the tables and marts, behind PostgreSQL's protocol, for clients that are not trusted."""
