package providers

import (
	"encoding/json"
	"strings"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/signature"
)

// adyenItem is what an item of Adyen's is known by, and its topic.
func adyenItem(event []byte) (id, topic string) {
	var v struct {
		Item struct {
			PSPReference string          `json:"pspReference"`
			EventCode    string          `json:"eventCode"`
			Success      json.RawMessage `json:"success"`
		} `json:"NotificationRequestItem"`
	}
	if json.Unmarshal(event, &v) != nil || v.Item.PSPReference == "" {
		return "", ""
	}
	return v.Item.PSPReference + " " + v.Item.EventCode + " " + strings.Trim(string(v.Item.Success), `"`), v.Item.EventCode
}

// wixClaims takes the event out of Wix's token.
func wixClaims(body []byte) ([][]byte, error) {
	claims, err := signature.Wix().Claims(body)
	return [][]byte{claims}, err
}

// wixEvent reads through Wix's envelopes: JSON in a string of JSON in a string of JSON.
func wixEvent(claims []byte) (id, topic string) {
	var token struct{ Data string }
	var event struct{ EventType, Data string }
	var data struct{ ID string }
	if json.Unmarshal(claims, &token) != nil || json.Unmarshal([]byte(token.Data), &event) != nil {
		return "", ""
	}
	if json.Unmarshal([]byte(event.Data), &data) != nil {
		return "", event.EventType
	}
	return data.ID, event.EventType
}

// eventGridValidation answers the event by which Event Grid asks whether the address is meant.
func eventGridValidation(r signature.Request, _ string) (receive.Reply, bool) {
	if r.Header.Get("aeg-event-type") != "SubscriptionValidation" {
		return receive.Reply{}, false
	}
	var events []struct {
		Data struct{ ValidationCode string }
	}
	if json.Unmarshal(r.Body, &events) != nil || len(events) != 1 || events[0].Data.ValidationCode == "" {
		return receive.Reply{}, false
	}
	body, err := json.Marshal(map[string]string{"validationResponse": events[0].Data.ValidationCode})
	if err != nil {
		return receive.Reply{}, false
	}
	return receive.Reply{ContentType: "application/json", Body: body}, true
}
