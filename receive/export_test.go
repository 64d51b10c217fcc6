package receive

import "time"

// Breaks lets the play of histories switch rules off.
type Breaks = breaks

// Break switches off what set says.
func (in *Inbox) Break(set func(*Breaks)) { set(&in.breaks) }

// SetLease makes the lease shorter than the deadline, so that it must be renewed.
func (in *Inbox) SetLease(d time.Duration) { in.lease = d }

// Break switches off what set says.
func (s *Sync) Break(set func(*Breaks)) { set(&s.breaks) }

// Names of breaks, for the tests' tables.
func HeldIsSuccess(b *Breaks)      { b.heldIsSuccess = true }
func DoneFirst(b *Breaks)          { b.doneFirst = true }
func DownIsSuccess(b *Breaks)      { b.downIsSuccess = true }
func FreedIsSuccess(b *Breaks)     { b.freedIsSuccess = true }
func NoLetter(b *Breaks)           { b.noLetter = true }
func UnansweredLetter(b *Breaks)   { b.unansweredLetter = true }
func DoneBeforeLetter(b *Breaks)   { b.doneBeforeLetter = true }
func UncappedRenewal(b *Breaks)    { b.uncappedRenewal = true }
func LostLeaseIsSuccess(b *Breaks) { b.lostLeaseIsSuccess = true }
func NilBelieved(b *Breaks)        { b.nilBelieved = true }
func UnansweredPut(b *Breaks)      { b.unansweredPut = true }
func MemoryRepeat(b *Breaks)       { b.memoryRepeat = true }
func ReleasedAtDeadline(b *Breaks) { b.releasedAtDeadline = true }
func ShortLease(b *Breaks)         { b.shortLease = true }
func NoClockCheck(b *Breaks)       { b.noClockCheck = true }
func UnansweredClaim(b *Breaks)    { b.unansweredClaim = true }
