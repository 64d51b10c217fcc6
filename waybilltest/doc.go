// Package waybilltest helps to test an application that publishes through Waybill.
//
// RequirePublished asserts on what a transaction published, without any Waybill running.
// Receiver is a customer's server: it verifies signatures, keeps what arrives, and fails as
// scripted.
package waybilltest
