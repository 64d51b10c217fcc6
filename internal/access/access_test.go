package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var looks = regexp.MustCompile(`^wbk_[a-z2-7]{39}$`)

func TestNewKey_isShapedAndNeverTheSame(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		key, shown := NewKey()
		if !looks.MatchString(key) || !Shaped(key) {
			t.Fatalf("a key of %d characters that begins %.12s", len(key), key)
		}
		if len(shown) != 12 || !strings.HasPrefix(key, shown) {
			t.Fatalf("%d characters are shown", len(shown))
		}
		if seen[key] {
			t.Fatal("twice the same key")
		}
		seen[key] = true
	}
}

// The check is CRC-32 as everybody computes it: IEEE 802.3, big-endian, written in base32 with
// Python's base64.b32encode(zlib.crc32(s).to_bytes(4, "big")).lower().rstrip("=").
func TestShaped_checkIsCRC32(t *testing.T) {
	if !Shaped("wbk_abcdefghijklmnopqrstuvwxyz2345673chzseq") {
		t.Error("a key that was put together elsewhere is not one")
	}
}

func TestShaped_refusesWhatIsMistyped(t *testing.T) {
	key, _ := NewKey()
	for name, bad := range map[string]string{
		"nothing": "", "the beginning": "wbk_", "cut": key[:len(key)-1], "longer": key + "a", "another prefix": "abc_" + key[4:],
		"upper case": strings.ToUpper(key), "a space": key[:20] + " " + key[21:], "an operator's own": "op_0123456789abcdef",
	} {
		if Shaped(bad) {
			t.Errorf("%s was taken", name)
		}
	}
	// CRC-32 finds every error in one character.
	for i := len(keyPrefix); i < len(key); i++ {
		other := byte('a')
		if key[i] == 'a' {
			other = 'b'
		}
		if Shaped(key[:i] + string(other) + key[i+1:]) {
			t.Errorf("character %d may be another", i)
		}
	}
}

// counting is a store of one key that counts what it is asked.
type counting struct {
	digest      outbox.Digest
	key         outbox.Key
	gone        bool
	err         error
	asked, used int
	during      func()
}

func (c *counting) KeyByDigest(_ context.Context, digest outbox.Digest, now time.Time) (outbox.Key, error) {
	c.asked++
	if c.err != nil {
		return outbox.Key{}, c.err
	}
	if c.gone || digest != c.digest || !c.key.ExpiresAt.IsZero() && !now.Before(c.key.ExpiresAt) {
		return outbox.Key{}, outbox.ErrNotFound
	}
	if c.during != nil {
		c.during()
	}
	return c.key, nil
}

func (c *counting) TouchKey(_ context.Context, _ outbox.KeyID, now time.Time) error {
	c.used++
	c.key.LastUsedAt = now
	return nil
}

// within runs a test in its own time with a store that holds the key it is given.
func within(t *testing.T, run func(t *testing.T, k *Keys, c *counting, key string)) {
	synctest.Test(t, func(t *testing.T) {
		key, shown := NewKey()
		c := &counting{digest: DigestOf(key), key: outbox.Key{Name: "k", Prefix: shown}}
		run(t, NewKeys(c, &outbox.Clock{}, slog.New(slog.DiscardHandler)), c, key)
	})
}

func find(t *testing.T, k *Keys, key string, want bool) {
	t.Helper()
	found, ok, err := k.Find(t.Context(), key)
	if err != nil || ok != want || ok && found.Name != "k" {
		t.Fatalf("found %v (%v), want %v", ok, err, want)
	}
}

func TestKeys_areRememberedForASecond(t *testing.T) {
	within(t, func(t *testing.T, k *Keys, c *counting, key string) {
		for range 100 {
			find(t, k, key, true)
		}
		if c.asked != 1 {
			t.Errorf("the database was asked %d times", c.asked)
		}
		c.gone = true // deleted through another server
		time.Sleep(memory - time.Nanosecond)
		find(t, k, key, true)
		time.Sleep(time.Nanosecond)
		find(t, k, key, false)
	})
}

func TestKeys_forgetHoldsAtOnce(t *testing.T) {
	within(t, func(t *testing.T, k *Keys, c *counting, key string) {
		find(t, k, key, true)
		c.gone = true
		k.Forget()
		find(t, k, key, false)
		// Read before it was deleted, remembered after.
		c.gone, c.during = false, func() { c.gone = true; k.Forget() }
		find(t, k, key, true)
		find(t, k, key, false)
	})
}

func TestKeys_expireWhileRemembered(t *testing.T) {
	within(t, func(t *testing.T, k *Keys, c *counting, key string) {
		c.key.ExpiresAt = time.Now().Add(memory / 2)
		find(t, k, key, true)
		time.Sleep(memory / 2)
		find(t, k, key, false)
	})
}

func TestKeys_askNothingAboutWhatIsNoKey(t *testing.T) {
	within(t, func(t *testing.T, k *Keys, c *counting, key string) {
		find(t, k, key[:len(key)-1], false)
		find(t, k, strings.Repeat("x", 1<<20), false)
		if c.asked != 0 {
			t.Errorf("the database was asked %d times", c.asked)
		}
		stranger, _ := NewKey()
		find(t, k, stranger, false)
		find(t, k, stranger, false)
		if c.asked != 2 {
			t.Errorf("the database was asked %d times about an unknown key, want 2: nothing is remembered of those", c.asked)
		}
	})
}

func TestKeys_noteTheirUseNowAndThen(t *testing.T) {
	within(t, func(t *testing.T, k *Keys, c *counting, key string) {
		for range 10 {
			find(t, k, key, true)
			time.Sleep(time.Minute)
		}
		if c.used != 2 {
			t.Errorf("written %d times in ten minutes, want 2", c.used)
		}
	})
}

func TestKeys_passOnWhatTheDatabaseSays(t *testing.T) {
	within(t, func(t *testing.T, k *Keys, c *counting, key string) {
		c.err = fmt.Errorf("away")
		if _, ok, err := k.Find(t.Context(), key); ok || !errors.Is(err, c.err) {
			t.Errorf("found %v, %v", ok, err)
		}
	})
}
