// Package app puts the server together: it opens the store, builds each part once, starts them
// in order and stops them in the opposite order.
package app
