package receive

// breaks switches off one rule of the protocol each. The tests do so to see that the play of
// histories notices; outside of export_test.go nothing sets them, and all are false.
type breaks struct {
	heldIsSuccess      bool // Sync: a repeat of a held event is told "done"
	doneFirst          bool // Sync: settled done before the handler
	downIsSuccess      bool // Sync: a store that is down is told "done"
	freedIsSuccess     bool // Sync: a waiter takes "no longer held" for done
	noLetter           bool // Sync: a permanent error is told "done" without a letter
	unansweredLetter   bool // Sync: the letter's answer is not waited for
	doneBeforeLetter   bool // Sync: the letter in the other store comes second
	uncappedRenewal    bool // Inbox: the lease is renewed while the handler runs, for ever
	lostLeaseIsSuccess bool // a refused confirm counts as done
	nilBelieved        bool // the row is not read after ConfirmTx
	unansweredPut      bool // Inbox: an unanswered commit is told "stored"
	memoryRepeat       bool // Inbox: an event known from this process's memory is told "stored"
	releasedAtDeadline bool // the claim is given back while the handler runs
	shortLease         bool // the lease is half of the deadline
	noClockCheck       bool // the clock is not looked at right before the handler
	unansweredClaim    bool // an unanswered claim counts as granted
}
