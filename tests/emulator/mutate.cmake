# mutate.cmake: put one fault into a copy of the protocols.
#   cmake -DIN=kernels/protocol.h -DCONTROL=controls/NAME.control -DOUT=NAME.h -P mutate.cmake
# A control is a text: lines "about:" and "run:" for controls.c, then edits, each
#   <<<<
#   text that must occur exactly once
#   ====
#   what stands there instead
#   >>>>
# An edit that does not match is not an error here, or a change of the protocols would break everybody's build: the copy
# then defines EMU_STALE, and the test fails.
file(READ "${CONTROL}" rest)
# The protocols as one text: what protocol.h includes stands in its place.
file(READ "${IN}" text)
get_filename_component(kernels "${IN}" DIRECTORY)
string(REGEX MATCHALL "#include \"protocol/[a-z]+\\.h\"" includes "${text}")
foreach(include ${includes})
  string(REGEX MATCH "protocol/[a-z]+\\.h" name "${include}")
  file(READ "${kernels}/${name}" part)
  string(REGEX REPLACE "#include \"[a-z]+\\.h\"\n" "" part "${part}")
  string(REPLACE "#include \"../" "#include \"" part "${part}")
  string(REPLACE "${include}" "${part}" text "${text}")
endforeach()
set(stale "")
string(FIND "${rest}" "<<<<\n" at)
if(at EQUAL -1)
  set(stale "no edit")
endif()
while(NOT at EQUAL -1 AND stale STREQUAL "")
  math(EXPR at "${at} + 5")
  string(SUBSTRING "${rest}" ${at} -1 rest)
  string(FIND "${rest}" "====\n" middle)
  string(FIND "${rest}" ">>>>\n" end)
  math(EXPR after "${middle} + 5")
  math(EXPR length "${end} - ${after}")
  string(SUBSTRING "${rest}" 0 ${middle} old)
  string(SUBSTRING "${rest}" ${after} ${length} new)
  string(SUBSTRING "${rest}" ${end} -1 rest)
  string(REGEX REPLACE "\n$" "" old "${old}") # an edit may be part of a line
  string(REGEX REPLACE "\n$" "" new "${new}")
  string(FIND "${text}" "${old}" first)
  string(FIND "${text}" "${old}" last REVERSE)
  if(first EQUAL -1)
    set(stale "text to replace is not there")
  elseif(NOT first EQUAL last)
    set(stale "text to replace is there more than once")
  endif()
  string(REPLACE "${old}" "${new}" text "${text}")
  string(FIND "${rest}" "<<<<\n" at)
endwhile()
if(NOT stale STREQUAL "")
  set(text "#define EMU_STALE \"${stale}\"\n#include \"kernels/protocol.h\"\n")
endif()
file(WRITE "${OUT}" "${text}")
