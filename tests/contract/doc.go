// Package contract holds the HTTP API to the OpenAPI document that it prints.
//
// Requests made from the document, right and wrong, go to a server with everything in it, and a
// library of other people judges each answer: its status must be declared, its body must follow
// the schema of that status. The clients that are made from the document do what a customer would
// do, against the real program.
//
// A module of its own, so that nobody who imports Waybill inherits what it needs.
package contract
