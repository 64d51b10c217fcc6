// Package portal serves the pages: the customer portal below /portal, for one tenant each, and
// the operator dashboard.
//
// The pages are rendered here and are a client of the HTTP API, called within the process as
// the person who looks (API). They hold no rule of their own about what may be done: whatever
// a page shows or does the API allows that person, and what it refuses is shown in its words.
//
// A page is a template in templates/, whose block "main" the layout surrounds, and a handler
// func(*Visit) error that is registered with Base.Get or Base.Post. The template parts in
// templates/parts.html are the components; the classes they use are the contract with
// assets/app.css. The page is the truth and script a comfort: links, GET forms for filters, POST
// forms for acts. Every act needs a POST from our own pages, answers by a redirect, and carries a
// key made with the page, so that a double click is one act.
//
// Nothing that a stranger wrote is ever markup. Templates escape it, and text that could hide
// something (bytes of an answer, of a payload, a header) goes through the function plain, which
// shows invisible characters as marked escapes.
package portal
