package client

import "time"

// Link lets somebody in, once.
type Link struct {
	ID            string    `json:"id"`
	URL           string    `json:"url"`
	ExpiresAt     time.Time `json:"expires_at"`
	LinkExpiresAt time.Time `json:"link_expires_at"`
}

// Session is what a link became.
type Session struct {
	ID          string    `json:"id"`
	State       string    `json:"state"` // unused, open, expired, revoked
	User        *User     `json:"user"`
	Permissions []string  `json:"permissions"`
	ExpiresAt   time.Time `json:"expires_at"`
	CreatedBy   string    `json:"created_by"`
}

// User is who a session is for.
type User struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// Label is what tells the user from others, "" for nobody.
func (u *User) Label() string {
	switch {
	case u == nil:
		return ""
	case u.Name != "":
		return u.Name
	case u.Email != "":
		return u.Email
	}
	return u.ID
}

// Key is a key of the API, without the key.
type Key struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Prefix     string    `json:"prefix"`
	Tenant     string    `json:"tenant"`
	Scopes     []string  `json:"scopes"`
	ExpiresAt  time.Time `json:"expires_at"`
	LastUsedAt time.Time `json:"last_used_at"`
}
