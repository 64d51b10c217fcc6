package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Durability is how the server was told to treat commits, as this program's role meets it.
type Durability struct {
	Fsync, FullPageWrites, SynchronousCommit, Standbys string
}

// DurabilityQuery reads a Durability, its fields in their order.
const DurabilityQuery = `
	SELECT current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('synchronous_standby_names')`

// Durability looks at the settings that decide what an answered commit is worth.
func (s *Store) Durability(ctx context.Context) (d Durability, err error) {
	err = s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(DurabilityQuery).QueryRow(func(row pgx.Row) error {
			return row.Scan(&d.Fsync, &d.FullPageWrites, &d.SynchronousCommit, &d.Standbys)
		})
	})
	return d, err
}

// Weakness says why an accepted event can be lost in a crash, and what to do; "" where it cannot.
func (d Durability) Weakness() (reason, advice string) {
	switch {
	case d.Fsync != "on":
		return "fsync is off: a crash of the machine can lose or corrupt everything.", "Set fsync = on."
	case d.FullPageWrites != "on":
		return "full_page_writes is off: a crash can leave torn pages.", "Set full_page_writes = on, unless the file system writes whole pages."
	case d.SynchronousCommit == "off":
		return "synchronous_commit is off: a commit is answered before it is on disk, and the last ones are lost in a crash.", "Set synchronous_commit = on for this database and role."
	}
	return "", ""
}
