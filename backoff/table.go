// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"encoding/binary"
	"hash/maphash"
	"time"
)

// inlineKey is the length of the longest key that has room in its entry, which
// is that of the kubelet's keys. A longer one costs more memory and time.
const inlineKey = 16

// entry is the state of one key. It takes 40 bytes and has no pointers.
type entry struct {
	// key is the key padded with zeros, or for a longer one its hash.
	key [inlineKey]byte
	// lastUpdate is when the key last advanced, on the wall clock, because the
	// event times that it is compared with are wall-clock times.
	lastUpdate time.Duration
	// mark is a monotonic time: that of the last advance, and once the key has
	// been found waiting that of the first check which found it so.
	mark time.Duration
	// state is the number of advances since the last reset, at least 1 for an
	// entry in use and 0 for a free one; above it in lengthMask the length of
	// the key, longKey for all that are not inline; and waitingBit.
	state uint32
	// long is the index in table.long of a key that is not inline.
	long uint32
}

const (
	attemptsMask = 1<<26 - 1
	lengthMask   = 1<<31 - 1 - attemptsMask
	lengthUnit   = attemptsMask + 1
	longKey      = (inlineKey + 1) * lengthUnit
	waitingBit   = 1 << 31
)

func (e *entry) attempts() uint32 { return e.state & attemptsMask }

func (e *entry) waiting() bool { return e.state&waitingBit != 0 }

func (e *entry) startWaiting(at time.Duration) {
	e.state |= waitingBit
	e.mark = at
}

func (e *entry) set(attempts uint32, wall, monotonic time.Duration) {
	e.state = e.state&lengthMask | min(attempts, attemptsMask)
	e.lastUpdate, e.mark = wall, monotonic
}

// table maps keys to entries by extendible hashing. Its zero value is empty. It is not a map because a
// map with the entries in it grows by half its size at once, and one of
// pointers takes twice the memory and another cache miss.
type table struct {
	seed maphash.Seed
	// segments has 2^depth elements. That at index i holds the keys whose hash
	// begins with the depth bits of i; one that holds more than those keys
	// stands in several neighbouring elements.
	segments []*segment
	depth    uint
	// long holds the keys that are not inline, and longFree the indexes in it
	// that are free again.
	long     []string
	longFree []uint32
}

// segment is a hash table with linear probing. It grows in small steps, so that
// most of it is in use, and is split when it gets large, so that growing does
// not take long.
type segment struct {
	// depth is how many leading bits the hashes of all its keys share.
	depth uint
	size  int
	// slots has at least one free entry in it.
	slots []entry
}

// maxSegment is how many keys make a full segment split instead of grow. It
// bounds for how long one insertion and one step of GC hold the lock.
const maxSegment = 1024

// newSegment returns a segment for size keys and some more. The few keys of a
// node, which fit the first segment, are spread thin, so that nearly every
// search ends where it starts; many keys are packed to save memory.
func newSegment(depth uint, size int) *segment {
	slots := 4*size + 8
	if depth > 0 {
		slots = size*9/7 + 2
	}
	return &segment{depth: depth, slots: make([]entry, slots)}
}

// full tells whether one more key would fill the segment to more than a half
// or, if it is packed, seven eighths.
func (s *segment) full() bool {
	if s.depth == 0 {
		return (s.size+1)*2 > len(s.slots)
	}
	return (s.size+1)*8 > len(s.slots)*7
}

// start returns where the search for a hash begins. It uses the lower half of
// the hash; the upper half chose the segment.
func (s *segment) start(hash uint64) int {
	return int(hash & (1<<32 - 1) * uint64(len(s.slots)) >> 32)
}

// next returns the slot after slot i.
func (s *segment) next(i int) int {
	if i++; i == len(s.slots) {
		return 0
	}
	return i
}

// add puts in an entry whose key is not there, and returns where it is.
func (s *segment) add(hash uint64, e *entry) *entry {
	i := s.start(hash)
	for s.slots[i].state != 0 {
		i = s.next(i)
	}
	s.slots[i] = *e
	s.size++
	return &s.slots[i]
}

// encode returns a key in the form in which an entry holds it, and its length as
// in entry.state.
func encode(key string, hash uint64) (inline [inlineKey]byte, length uint32) {
	if len(key) <= inlineKey {
		copy(inline[:], key)
		return inline, uint32(len(key)) * lengthUnit
	}
	binary.LittleEndian.PutUint64(inline[:], hash)
	return inline, longKey
}

// keyOf returns the key of an entry.
func (t *table) keyOf(e *entry) string {
	if e.state&lengthMask == longKey {
		return t.long[e.long]
	}
	return string(e.inline())
}

func (e *entry) inline() []byte { return e.key[:e.state&lengthMask/lengthUnit] }

// hashOf returns what maphash.String returns for the key of an entry.
func (t *table) hashOf(e *entry) uint64 {
	if e.state&lengthMask == longKey {
		return binary.LittleEndian.Uint64(e.key[:])
	}
	return maphash.Bytes(t.seed, e.inline())
}

func (t *table) segment(hash uint64) *segment {
	return t.segments[hash>>(64-t.depth)]
}

// find returns the entry of a key, nil if there is none. It is valid until the
// next insertion or removal of any key.
func (t *table) find(key string) *entry {
	if t.segments == nil {
		return nil
	}
	s, i := t.search(key)
	if e := &s.slots[i]; e.state != 0 {
		return e
	}
	return nil
}

// search returns the segment of a key and its slot there, a free one if it has
// none.
func (t *table) search(key string) (s *segment, i int) {
	hash := maphash.String(t.seed, key)
	inline, length := encode(key, hash)
	s = t.segment(hash)
	for i = s.start(hash); ; i = s.next(i) {
		e := &s.slots[i]
		if e.state == 0 {
			return s, i
		}
		if e.key == inline && e.state&lengthMask == length && (length != longKey || t.long[e.long] == key) {
			return s, i
		}
	}
}

// insert adds a key that is not there yet, with one attempt.
func (t *table) insert(key string) *entry {
	if t.segments == nil {
		t.seed, t.segments = maphash.MakeSeed(), []*segment{newSegment(0, 0)}
	}
	hash := maphash.String(t.seed, key)
	inline, length := encode(key, hash)
	e := entry{key: inline, state: length | 1}
	if length == longKey {
		e.long = t.addLong(key)
	}
	for t.segment(hash).full() {
		t.grow(hash)
	}
	return t.segment(hash).add(hash, &e)
}

func (t *table) addLong(key string) uint32 {
	if last := len(t.longFree) - 1; last >= 0 {
		i := t.longFree[last]
		t.longFree = t.longFree[:last]
		t.long[i] = key
		return i
	}
	t.long = append(t.long, key)
	return uint32(len(t.long) - 1)
}

// grow makes the segment of a hash larger, or splits it in two.
func (t *table) grow(hash uint64) {
	old := t.segment(hash)
	if old.size < maxSegment {
		larger := newSegment(old.depth, old.size)
		for i := range old.slots {
			if e := &old.slots[i]; e.state != 0 {
				larger.add(t.hashOf(e), e)
			}
		}
		old.slots = larger.slots
		return
	}
	if old.depth == t.depth {
		doubled := make([]*segment, 0, 2*len(t.segments))
		for _, s := range t.segments {
			doubled = append(doubled, s, s)
		}
		t.segments = doubled
		t.depth++
	}
	// The bit that decides which half a hash goes to.
	bit := uint64(1) << (63 - old.depth)
	ones := 0
	for i := range old.slots {
		if e := &old.slots[i]; e.state != 0 && t.hashOf(e)&bit != 0 {
			ones++
		}
	}
	zero, one := newSegment(old.depth+1, old.size-ones), newSegment(old.depth+1, ones)
	for i := range old.slots {
		if e := &old.slots[i]; e.state != 0 {
			if h := t.hashOf(e); h&bit != 0 {
				one.add(h, e)
			} else {
				zero.add(h, e)
			}
		}
	}
	// The elements that held old are a range, of which each gets a half.
	span := uint64(1) << (t.depth - old.depth)
	first := hash >> (64 - t.depth) &^ (span - 1)
	for i := range span {
		t.segments[first+i] = zero
		if i >= span/2 {
			t.segments[first+i] = one
		}
	}
}

// remove deletes a key that is there.
func (t *table) remove(key string) {
	s, i := t.search(key)
	t.removeAt(s, i)
}

// removeAt frees slot i and moves up what would not be found behind it.
func (t *table) removeAt(s *segment, i int) {
	if e := &s.slots[i]; e.state&lengthMask == longKey {
		t.long[e.long] = ""
		t.longFree = append(t.longFree, e.long)
	}
	for j := s.next(i); s.slots[j].state != 0; j = s.next(j) {
		start := s.start(t.hashOf(&s.slots[j]))
		// Is start outside of the cyclic range from behind i to j?
		if i < j && (start <= i || j < start) || j < i && j < start && start <= i {
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = entry{}
	s.size--
}

// visit calls fn for the entries of one segment, which hold the hashes from the
// given one up to next, and removes those for which it returns true. An entry
// may be visited twice. There are more as long as next is not 0.
func (t *table) visit(from uint64, fn func(*entry) (remove bool)) (next uint64) {
	if t.segments == nil {
		return 0
	}
	s := t.segment(from)
	for i := 0; i < len(s.slots); {
		if e := &s.slots[i]; e.state != 0 && fn(e) {
			t.removeAt(s, i)
			continue // with what moved up
		}
		i++
	}
	// The shift by 64 for a depth of 0 gives 0, as it should.
	return from&^(1<<(64-s.depth)-1) + 1<<(64-s.depth)
}

// random is a number in [0, 1) that depends on the key and its attempts alone,
// so that all checks of one wait see the same jitter. It is one step of the
// generator splitmix64.
func (t *table) random(e *entry) float64 {
	x := t.hashOf(e) + uint64(e.attempts())*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
