// Package metrics measures the server for Prometheus: what passes through the store, how the node
// stands, and what waits in the database. docs/metrics.md lists every name.
//
// Nothing is labelled by tenant, endpoint, event type or URL: those are as many as customers make,
// and a label a customer can choose is a way to fill somebody's monitoring system. Who hurts is the
// dashboard's business.
package metrics
