package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Verify proves the books from one read transaction.
func (s *Store) Verify(ctx context.Context, deep bool) (outbox.Report, error) {
	began := time.Now()
	report := outbox.Report{At: began.UTC().Truncate(time.Microsecond)}
	err := s.read(ctx, func(r *session) error {
		p := proof{ctx: ctx, session: r, report: &report}
		steps := []func() error{p.deliveries, p.events, p.turns}
		if deep {
			steps = append(steps, p.numbers)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return outbox.Report{}, err
	}
	if took := time.Since(began); took > 5*time.Minute {
		report.Warning = fmt.Sprintf("The snapshot is %s old.", took.Round(time.Second))
	}
	return report, nil
}

// proof compares the ledger with the rows, shard by shard.
type proof struct {
	ctx     context.Context
	session *session
	report  *outbox.Report
}

// everyShard counts the shards up.
func everyShard(yield func(outbox.Shard) bool) {
	for i := range outbox.Shards {
		if !yield(outbox.Shard(i)) {
			return
		}
	}
}

// deliveries proves that what was planned is pending or has ended, and that what ended
// undelivered and was not replayed or purged is a dead letter.
func (p *proof) deliveries() error {
	var ledger [outbox.Shards]counts
	if err := p.session.eachOnce(p.ctx, `
		SELECT shard, sum(planned), sum(delivered), sum(dead), sum(cancelled), sum(replayed), sum(revived), sum(purged)
		FROM waybill_ledger
		GROUP BY shard`,
		nil,
		func(scan scan) error {
			var shard outbox.Shard
			var c counts
			err := scan(&shard, &c.planned, &c.delivered, &c.dead, &c.cancelled, &c.replayed, &c.revived, &c.purged)
			ledger[shard] = c
			return err
		}); err != nil {
		return err
	}
	pending, err := p.countByShard("SELECT shard, count(*) FROM waybill_delivery GROUP BY shard")
	if err != nil {
		return err
	}
	letters, err := p.countByShard("SELECT shard, count(*) FROM waybill_dead_letter GROUP BY shard")
	if err != nil {
		return err
	}
	planned := outbox.Check{Name: "planned = delivered + dead + cancelled + pending"}
	ended := outbox.Check{Name: "dead + cancelled - revived - purged = dead letters"}
	for shard := range everyShard {
		c := ledger[shard]
		p.report.Planned += c.planned
		p.report.Delivered += c.delivered
		p.report.Dead += c.dead
		p.report.Cancelled += c.cancelled
		p.report.Replayed += c.replayed
		p.report.Pending += pending[shard]
		where := fmt.Sprintf("shard %d", shard)
		compare(&planned, where, c.planned, c.delivered+c.dead+c.cancelled+pending[shard])
		compare(&ended, where, c.dead+c.cancelled-c.revived-c.purged, letters[shard])
	}
	p.report.Checks = append(p.report.Checks, planned, ended)
	return nil
}

func (p *proof) countByShard(query string) (n [outbox.Shards]int64, err error) {
	err = p.session.eachOnce(p.ctx, query, nil, func(scan scan) error {
		var shard outbox.Shard
		var count int64
		err := scan(&shard, &count)
		n[shard] = count
		return err
	})
	return n, err
}

// compare notes where an equation does not hold.
func compare(check *outbox.Check, where string, left, right int64) {
	if left != right {
		check.Broken = append(check.Broken, outbox.Imbalance{Where: where, Left: left, Right: right})
	}
}

// events proves, for every day whose events are kept, that each was routed or waits to be, and
// that what was routed either matched or did not.
func (p *proof) events() error {
	retired, err := p.retiredBefore()
	if err != nil {
		return err
	}
	routed := map[eventLine]eventCounts{}
	if err := p.session.eachOnce(p.ctx, "SELECT shard, day, routed, matched, unmatched FROM waybill_ledger_event", nil, func(scan scan) error {
		var key eventLine
		var c eventCounts
		err := scan(&key.shard, &key.day, &c.routed, &c.matched, &c.unmatched)
		routed[key] = c
		return err
	}); err != nil {
		return err
	}
	waiting := map[eventLine]int64{}
	if err := p.session.eachOnce(p.ctx, "SELECT shard, event FROM waybill_outbox WHERE kind = 0", nil, func(scan scan) error {
		var shard outbox.Shard
		var id outbox.EventID
		err := scan(&shard, idTo{(*[16]byte)(&id)})
		waiting[eventLine{shard, dayOf(id.Time())}]++
		return err
	}); err != nil {
		return err
	}
	stored, err := p.storedEvents(retired)
	if err != nil {
		return err
	}
	kept := outbox.Check{Name: "routed + waiting = events"}
	matched := outbox.Check{Name: "routed = matched + unmatched"}
	lines := map[eventLine]bool{}
	for key, c := range routed {
		lines[key] = true
		p.report.Routed += c.routed
		p.report.Matched += c.matched
		p.report.Unmatched += c.unmatched
	}
	for key, n := range waiting {
		lines[key] = true
		p.report.Waiting += n
	}
	for key := range stored {
		lines[key] = true
	}
	for _, key := range slices.SortedFunc(maps.Keys(lines), func(a, b eventLine) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.day, b.day))
	}) {
		c := routed[key]
		where := fmt.Sprintf("shard %d, events of %s", key.shard, dayStart(key.day).Format(time.DateOnly))
		compare(&matched, where, c.routed, c.matched+c.unmatched)
		if key.day >= retired {
			compare(&kept, where, c.routed+waiting[key], stored[key])
		}
	}
	p.report.Checks = append(p.report.Checks, kept, matched)
	return nil
}

// retiredBefore is the first day whose events are all kept.
func (p *proof) retiredBefore() (day int64, err error) {
	err = p.session.get("SELECT before_day FROM waybill_retired", nil, &day)
	return day, err
}

// storedEvents counts the events of each day since the given one, a day at a time: an index
// holds ids and shards, so no payload is touched.
func (p *proof) storedEvents(since int64) (map[eventLine]int64, error) {
	stored := map[eventLine]int64{}
	for day := since; ; day++ {
		floor := outbox.EventFloor(dayStart(day))
		var next outbox.EventID
		err := p.session.get("SELECT id FROM waybill_event WHERE id >= ? ORDER BY id LIMIT 1", []any{floor[:]}, idTo{(*[16]byte)(&next)})
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return nil, err
		}
		day = dayOf(next.Time())
		low, high := outbox.EventFloor(dayStart(day)), outbox.EventFloor(dayStart(day+1))
		if err := p.session.eachOnce(p.ctx, `
			SELECT shard, count(*)
			FROM waybill_event INDEXED BY waybill_event_id
			WHERE id >= ? AND id < ?
			GROUP BY shard`,
			[]any{low[:], high[:]},
			func(scan scan) error {
				var shard outbox.Shard
				var n int64
				err := scan(&shard, &n)
				stored[eventLine{shard, day}] = n
				p.report.Events += n
				return err
			}); err != nil {
			return nil, err
		}
	}
	return stored, nil
}
