// Package filter decides from an event's payload whether an endpoint wants the event.
//
// A filter is a JSON object that has the shape of the payloads it wants:
//
//	{"data": {"amount": {"$gt": 100}, "currency": ["EUR", "CHF"], "customer": {"vip": true}}}
//
// Every member must hold. A plain string, number, true, false or null means "is equal to"; a list
// of these means "is one of"; an object without operators goes one level down. The operators:
//
//	$eq $ne                   equal to a value, or not
//	$gt $gte $lt $lte         a number by its value, a string by its bytes
//	$in $nin                  one of a list of values, or none
//	$exists                   true: there is such a member; false: there is none
//	$startsWith $endsWith     of a string
//	$contains                 a part of a string, or an element of a list
//	$and $or                  a list of filters for the same value
//	$not                      a filter that must not hold
//
// Where the payload has a list and the filter asks for a single value or for members, one element
// that fits is enough; $ne, $nin and $not then mean that none does. What is absent, or of
// another type, fits nothing but $ne, $nin, $not and "$exists": false. null is a value.
//
// Numbers are compared as they are written, with all their digits: 9007199254740993 is not
// 9007199254740992, and 1.0 equals 1 and 10e-1. Nothing is rounded.
//
// A payload that cannot be read as JSON is wanted by every filter. A document is read once for all filters, and of it only the members that some filter looks at.
// Neither filter nor payload is recursed over beyond the filter's own bounded depth.
package filter
