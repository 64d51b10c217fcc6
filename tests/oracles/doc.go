// Package oracles compares Waybill's own code with the reference implementations of others. It is
// a module of its own so that whoever imports Waybill does not inherit them.
package oracles
