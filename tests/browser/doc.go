// Package browser uses the pages as people do: a real browser, the real program, real deliveries.
//
// The tests run in a network of their own (network_test.go), where receivers have public addresses
// and names, since what answers from an address that only an allow list opens is hidden from
// customers. What the browser does is in flows/, one file for each matter; run.cjs runs them in
// one browser and reports each as a line, which becomes a subtest here. Pictures go to
// tests/screenshots, which git ignores.
package browser
