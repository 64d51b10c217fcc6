package postgres

import (
	"encoding/json"

	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// headerText writes headers as JSON, an array of objects; NULL where there are none. Two lists are
// in every attempt, nearly all of plain characters, which need no escapes.
func headerText(headers []outbox.Header) zeronull.Text {
	if len(headers) == 0 {
		return ""
	}
	text := make([]byte, 0, 512)
	for i := range headers {
		text = append(text, `,{"name":`...)
		text = appendQuoted(text, headers[i].Name)
		text = append(text, `,"value":`...)
		text = append(appendQuoted(text, headers[i].Value), '}')
	}
	text[0] = '['
	return zeronull.Text(append(text, ']'))
}

func appendQuoted(text []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic("strings do not fail: " + err.Error())
			}
			return append(text, quoted...)
		}
	}
	text = append(text, '"')
	text = append(text, s...)
	return append(text, '"')
}
