// Package sqlstub holds a small schema for the test database of an application that publishes
// by SQL: waybill.publish, waybill.ensure_tenant and the view waybill.published, with the
// signatures, the checks and the SQLSTATEs of the real schema. Events are rows to assert on and
// go nowhere, so that an application's tests need no Waybill.
package sqlstub

import _ "embed"

// SQL is the schema, for PostgreSQL 13 and later. Loading it again changes nothing. It refuses a
// database that holds the real schema.
//
//go:embed stub.sql
var SQL string
