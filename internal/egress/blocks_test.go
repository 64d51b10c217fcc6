package egress

import (
	"encoding/csv"
	"os"
	"testing"
)

// The generated table is that of its source, row by row.
func TestBlocks_areThoseOfTheTables(t *testing.T) {
	for file, table := range map[string][]block{"ipv4.csv": denied4, "ipv6.csv": denied6} {
		f, err := os.Open("../../tools/iana/" + file)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(f).ReadAll()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(rows)-1 != len(table) {
			t.Errorf("%s has %d rows, the table %d; run go -C tools run ./iana", file, len(rows)-1, len(table))
			continue
		}
		for i, row := range rows[1:] {
			if table[i].prefix.String() != row[0] || table[i].what != row[1] {
				t.Errorf("%s row %d is %v, the table has %v; run go -C tools run ./iana", file, i+2, row, table[i])
			}
		}
	}
}
