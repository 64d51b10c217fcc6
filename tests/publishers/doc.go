// Package publishers proves that an event can be published by SQL from everywhere: through pgx
// in each of its query modes, database/sql, psql, Python and Node.js, with the same bytes and the
// same refusals, against the real schema and against the stub that applications test with.
package publishers
