package filter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/filter"
)

const order = `{"id":9007199254740993,"type":"order","amount":120.50,"big":1e400,"open":true,"note":null,
	"tags":["a","b"],"lines":[{"sku":"x","n":1},{"sku":"y","n":20}],"customer":{"name":"José","country":"CH"},"$odd":1,"a.b":2}`

func TestFilter_rows(t *testing.T) {
	for _, row := range []struct {
		what, filter string
		want         bool
	}{
		{"nothing asked", `{}`, true},
		{"an equal string", `{"type":"order"}`, true},
		{"another string", `{"type":"Order"}`, false},
		{"a string of another type", `{"amount":"120.50"}`, false},
		{"all digits of a large number", `{"id":9007199254740993}`, true},
		{"a neighbour that float64 cannot tell apart", `{"id":9007199254740992}`, false},
		{"the same number written otherwise", `{"amount":12.05e1}`, true},
		{"greater by the last digit", `{"id":{"$gt":9007199254740992}}`, true},
		{"not greater than itself", `{"id":{"$gt":9007199254740993}}`, false},
		{"a number beyond float64", `{"big":{"$gt":1e399,"$lt":1e401}}`, true},
		{"at least and at most", `{"amount":{"$gte":120.5,"$lte":120.500}}`, true},
		{"true is true", `{"open":true}`, true},
		{"true is not 1", `{"open":1}`, false},
		{"null is a value", `{"note":null}`, true},
		{"an absent member is not null", `{"nothing":null}`, false},
		{"null exists", `{"note":{"$exists":true}}`, true},
		{"an absent member does not exist", `{"nothing":{"$exists":false}}`, true},
		{"an absent parent's member does not exist", `{"nothing":{"deep":{"$exists":false}}}`, false},
		{"one of a list, in short", `{"customer":{"country":["DE","CH"]}}`, true},
		{"one of a list", `{"customer":{"country":{"$in":["DE","AT"]}}}`, false},
		{"none of a list", `{"customer":{"country":{"$nin":["DE","AT"]}}}`, true},
		{"an absent member is none of a list", `{"nothing":{"$nin":["DE"]}}`, true},
		{"not equal", `{"type":{"$ne":"refund"}}`, true},
		{"an element of a list", `{"tags":"b"}`, true},
		{"no element of a list", `{"tags":"c"}`, false},
		{"not equal to any element", `{"tags":{"$ne":"b"}}`, false},
		{"a list contains", `{"tags":{"$contains":"a"}}`, true},
		{"a list contains whole elements", `{"tags":{"$contains":""}}`, false},
		{"both in one element", `{"lines":{"sku":"y","n":{"$gt":10}}}`, true},
		{"not spread over two elements", `{"lines":{"sku":"x","n":{"$gt":10}}}`, false},
		{"a beginning", `{"customer":{"name":{"$startsWith":"Jos"}}}`, true},
		{"an end, written as an escape", `{"customer":{"name":{"$endsWith":"\u00e9"}}}`, true},
		{"a part", `{"type":{"$contains":"rde"}}`, true},
		{"strings by their bytes", `{"type":{"$gt":"orde","$lt":"ordf"}}`, true},
		{"a string is not less than a number", `{"type":{"$lt":5}}`, false},
		{"either", `{"$or":[{"type":"refund"},{"amount":{"$gt":100}}]}`, true},
		{"either, of one value", `{"amount":{"$or":[{"$lt":10},{"$gt":100}]}}`, true},
		{"both", `{"$and":[{"type":"order"},{"open":false}]}`, false},
		{"not both", `{"$not":{"type":"order","open":false}}`, true},
		{"an operator beside a member", `{"type":"order","$not":{"open":true}}`, false},
		{"a member of a string", `{"type":{"x":1}}`, false},
		{"any object", `{"customer":{}}`, true},
		{"a string is no object", `{"type":{}}`, false},
		{"a name with a dot is a name", `{"a.b":2}`, true},
		{"a dot is no path", `{"customer.country":"CH"}`, false},
	} {
		t.Run(row.what, func(t *testing.T) {
			f, err := filter.Compile([]byte(row.filter))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Matches(filter.Parse([]byte(order))); got != row.want {
				t.Errorf("%s: %t", row.filter, got)
			}
		})
	}
}

func TestFilter_payloadsThatAreNoObjects(t *testing.T) {
	for _, row := range []struct {
		filter, payload string
		want            bool
	}{
		{`{"$eq":5}`, `5`, true},
		{`{"a":1}`, `5`, false},
		{`{"a":1}`, `[{"a":2},{"a":1}]`, true},
		{`{"a":1}`, `{"a":2,"a":1}`, true}, // the last one counts
		{`{"a":1}`, `{"a":1,"a":2}`, false},
		{`{"b":1}`, `{"\ud800":0,"b":1}`, true},
		{`{"b":"x"}`, `{"b":"\ud800"}`, false},
		{`{"b":{"$ne":"x"}}`, `{"b":"\ud800"}`, true},
		{`{"a":1}`, `a=2&b=3`, true}, // it cannot be read, so it is not left out
		{`{"a":1}`, strings.Repeat("[", 2000) + strings.Repeat("]", 2000), true},
	} {
		f, err := filter.Compile([]byte(row.filter))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Matches(filter.Parse([]byte(row.payload))); got != row.want {
			t.Errorf("%s of %.40s: %t", row.filter, row.payload, got)
		}
	}
}

func TestCompile_saysWhatIsWrongAndWhere(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 21) + "1" + strings.Repeat("}", 21)
	many := `{"a":[1` + strings.Repeat(",1", 500) + `]}`
	for _, row := range []struct{ filter, path, detail string }{
		{`[]`, "", "want an object"},
		{`{`, "", "is not JSON"},
		{`{} x`, "", "is not JSON"},
		{`{"a":{"$gt":true}}`, "a.$gt", "want a number or a string"},
		{`{"a":{"$regex":"x"}}`, "a.$regex", "there is no such operator; see the list of operators"},
		{`{"a":{"$in":5}}`, "a.$in", "want a list of values"},
		{`{"a":{"$in":[]}}`, "a.$in", "want at least one value"},
		{`{"a":{"$in":[1,{}]}}`, "a.$in[1]", "want a string, a number, true, false or null"},
		{`{"a":{"$exists":1}}`, "a.$exists", "want true or false"},
		{`{"$or":{}}`, "$or", "want a list of filters"},
		{`{"$or":[]}`, "$or", "want at least one filter"},
		{`{"a":{"$startsWith":1}}`, "a.$startsWith", "want a string"},
		{`{"a":1,"a":2}`, "a", "is given twice"},
		{`{"a":"\ud800"}`, "a", "holds half of a surrogate pair, which is no character"},
		{deep, "a" + strings.Repeat(".a", 19), "is nested deeper than 20 levels"},
		{many, "a[500]", "the filter has more than 500 conditions"},
		{`{"a":"` + strings.Repeat("x", filter.MaxBytes) + `"}`, "", "at most 16384 bytes"},
	} {
		_, err := filter.Compile([]byte(row.filter))
		fault, ok := errors.AsType[*filter.Error](err)
		if !ok || fault.Path != row.path || fault.Detail != row.detail {
			t.Errorf("%.60s: got %v, want %s: %s", row.filter, err, row.path, row.detail)
		}
	}
}

// math/big reads the same literals as exact fractions.
func TestFilter_comparesNumbersExactly(t *testing.T) {
	literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		have, with := literal.Draw(t, "have"), literal.Draw(t, "with")
		if rapid.Bool().Draw(t, "nearly the same") {
			with = have + rapid.SampledFrom([]string{"", "0", "1"}).Draw(t, "more")
			if !json.Valid([]byte(with)) {
				t.Skip("no number")
			}
		}
		a, ok1 := new(big.Rat).SetString(have)
		b, ok2 := new(big.Rat).SetString(with)
		if !ok1 || !ok2 {
			t.Fatalf("%s, %s: not understood by math/big", have, with)
		}
		want := a.Cmp(b)
		for operator, holds := range map[string]bool{"$eq": want == 0, "$ne": want != 0, "$gt": want > 0, "$gte": want >= 0, "$lt": want < 0, "$lte": want <= 0} {
			f, err := filter.Compile(fmt.Appendf(nil, `{"n":{%q:%s}}`, operator, with))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Matches(filter.Parse(fmt.Appendf(nil, `{"n":%s}`, have))); got != holds {
				t.Errorf("%s %s %s: %t", have, operator, with, got)
			}
		}
	})
}

func TestFilter_exponentsBeyondAllBoundsStillOrder(t *testing.T) {
	f, err := filter.Compile([]byte(`{"$gt":1e99999999999999999999999}`))
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]bool{"1e400": false, "-1e99999999999999999999999999": false, "1e-99999999999999999999999999": false} {
		if got := f.Matches(filter.Parse([]byte(payload))); got != want {
			t.Errorf("%s: %t", payload, got)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":{"$gt":1e400}}`, `{"a":["x",null]}`, `{"$or":[{"a":1},{"$not":{"b":{"$exists":true}}}]}`, `{"a":{"$contains":"\u0000"}}`} {
		f.Add([]byte(seed), []byte(order))
	}
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"\ud800":1,"a":[{"b":1.0}]}`))
	f.Fuzz(func(t *testing.T, text, payload []byte) {
		compiled, err := filter.Compile(text)
		if err != nil {
			return
		}
		d := filter.Parse(payload)
		first := compiled.Matches(d)
		if again := compiled.Matches(d); again != first {
			t.Errorf("a second look at the same document answers %t", again)
		}
		if json.Valid(payload) && len(payload) < 500 {
			opposite, err := filter.Compile(fmt.Appendf(nil, `{"$not":%s}`, text))
			if err == nil && opposite.Matches(filter.Parse(payload)) == first {
				t.Errorf("%s and its opposite agree on %s", text, payload)
			}
		}
	})
}
