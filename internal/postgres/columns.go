package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// uuids travel as one array; a zero id is NULL.
type uuids = pgtype.FlatArray[zeronull.UUID]

// column takes one column out of a batch.
func column[R, V any](rows []R, of func(*R) V) pgtype.FlatArray[V] {
	values := make(pgtype.FlatArray[V], len(rows))
	for i := range rows {
		values[i] = of(&rows[i])
	}
	return values
}

// idColumn is a list of ids as a column.
func idColumn[I ~[16]byte](ids []I) uuids {
	return column(ids, func(id *I) zeronull.UUID { return uuid(*id) })
}

// uuid is an id as a column or parameter, NULL where it is zero.
func uuid[I ~[16]byte](id I) zeronull.UUID { return zeronull.UUID(id) }

// intoID scans a column into an id, zero where it is NULL.
func intoID[I ~[16]byte](id *I) nullID[I] { return nullID[I]{id} }

type nullID[I ~[16]byte] struct{ id *I }

func (n nullID[I]) ScanUUID(v pgtype.UUID) error {
	*n.id = I(v.Bytes) // all zeros where not valid
	return nil
}

// intoText scans a column into a string, "" where it is NULL.
func intoText[S ~string](s *S) nullText[S] { return nullText[S]{s} }

type nullText[S ~string] struct{ s *S }

func (n nullText[S]) ScanText(v pgtype.Text) error {
	*n.s = S(v.String)
	return nil
}

// intoTime scans a column into a time, zero where it is NULL.
func intoTime(t *time.Time) *zeronull.Timestamptz { return (*zeronull.Timestamptz)(t) }

// at is a time as a column or parameter, NULL where it is zero.
func at(t time.Time) zeronull.Timestamptz { return zeronull.Timestamptz(t) }

// shardColumn is a list of shards as a column.
func shardColumn(shards []outbox.Shard) []int16 {
	values := make([]int16, len(shards))
	for i, s := range shards {
		values[i] = int16(s)
	}
	return values
}

// intoShard scans a column into a shard.
func intoShard(s *outbox.Shard) shardTarget { return shardTarget{s} }

type shardTarget struct{ s *outbox.Shard }

func (t shardTarget) ScanInt64(v pgtype.Int8) error {
	*t.s = outbox.Shard(v.Int64)
	return nil
}

// object is a map as JSON, nil where it is empty.
func object(m map[string]string) []byte {
	if len(m) == 0 {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("a map of strings does not fail: %v", err))
	}
	return text
}
