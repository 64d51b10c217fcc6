// Package house holds the rules of the house that a compiler cannot: which package may import
// what, and who may open a connection to an address someone else chose.
//
// They are tests, so they hold where no linter is installed; .golangci.yaml says the same to
// those who have one.
package house
