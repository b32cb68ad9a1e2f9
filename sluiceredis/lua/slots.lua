-- A pacer is the instant of its next free slot and, in a pause, the end of that.

-- slots returns how far these are ahead of now: the slot as seconds and
-- nanoseconds and in nanoseconds, the pause likewise, 0 if there is none. It
-- returns nil if value is something else.
local function slots(value)
  local digits, rest = string.match(value, '^(%d+)(.*)$')
  if not digits then return nil end
  local s, ns, free = ahead(digits)
  if not s then return nil end
  if rest == '' then return s, ns, free, 0, 0, 0 end
  rest = string.match(rest, '^ (%d+)$')
  if not rest then return nil end
  local ps, pns, pause = ahead(rest)
  if not ps or pause > 9007199254740991 then return nil end
  if pause <= 0 then return s, ns, free, 0, 0, 0 end
  return s, ns, free, ps, pns, pause
end
