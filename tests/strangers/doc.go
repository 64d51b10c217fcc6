// Package strangers runs the program against receivers that want something: events of a certain
// content only, an address instead of a payload, credentials, another signature.
package strangers
