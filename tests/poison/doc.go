// Package poison holds the test of what a stored event can do that kills whoever handles it: two
// deaths of the server, and no more. The program is built with the tag "poison", by which a
// marked payload makes it exit.
package poison
