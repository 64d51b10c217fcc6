// Package waybillapi is a client of Waybill's HTTP API.
//
// api.gen.go is made from the OpenAPI document that the server prints: a method for each
// operation, a type for each object. The rest is written by hand: New, which makes a client that
// returns every refusal as an *Error, and All, which walks over the pages of a list.
//
//	client, err := waybillapi.New("http://127.0.0.1:8420", key)
//	made, err := client.CreateEndpointWithResponse(ctx, "acme", nil, waybillapi.EndpointInput{URL: "https://example.com/hooks"})
//	secret := made.JSON201.Secret
//
// Publish with package github.com/waybill-dev/waybill where the event belongs into your own
// transaction; this client is for everything else, and for services without the database.
package waybillapi
