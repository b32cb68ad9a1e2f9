// Package slot knows the slots of a Redis Cluster.
package slot

import (
	"strconv"
	"strings"
	"sync"
)

// Count is the number of slots of a Redis Cluster.
const Count = 16384

// Of returns the slot of key. Of a key with braces only the content of the first ones counts, unless
// that is nothing.
func Of(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return int(crc16(key) % Count)
}

// crc16 is CRC-16/XMODEM: the polynomial x¹⁶ + x¹² + x⁵ + 1, from 0, the highest
// bit first. (Redis Cluster Specification, appendix A.)
func crc16(text string) uint16 {
	crc := uint16(0)
	for i := range len(text) {
		crc = crc<<8 ^ crcTable()[byte(crc>>8)^text[i]]
	}
	return crc
}

// crcTable is the value crc16 adds for each highest byte.
var crcTable = sync.OnceValue(func() *[256]uint16 {
	var table [256]uint16
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return &table
})

// Tags returns for each slot a short string that lies in it: the first of the numbers
// 0, 1, 2, … in base 36. They are part of the names of keys, and must stay.
var Tags = sync.OnceValue(func() *[Count]string {
	var all [Count]string
	for i, missing := int64(0), Count; missing > 0; i++ {
		tag := strconv.FormatInt(i, 36)
		if slot := Of(tag); all[slot] == "" {
			all[slot] = tag
			missing--
		}
	}
	return &all
})
