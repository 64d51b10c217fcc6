// Package receivetest makes tests of receivers and of stores short.
//
// Receivers: Post sends what the provider would send, signed as the provider signs; NewStore is a
// store in memory that fails on command; Drain runs an inbox's worker until nothing is due.
//
// Stores: TestClaimStore and TestInboxStore are the contracts of package receive as tests, and
// Broken has stores that each break one promise, so that a suite can be seen to notice.
package receivetest
