// Package real sends webhooks that somebody else wrote through the real binary, and has somebody
// else's library verify them: every example payload that GitHub's own packages collect,
// published by HTTP and by SQL, received and checked on Node.js by the reference implementation
// of Standard Webhooks.
package real
